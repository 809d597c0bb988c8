"""The commands of `holdfast`, one file per noun; heavy imports wait inside the functions."""
