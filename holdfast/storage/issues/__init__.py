"""Issues of a project and their todos."""
