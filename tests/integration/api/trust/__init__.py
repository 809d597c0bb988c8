"""What a project file may do before somebody trusts it, and odd files in its place."""
