"""What a cage may use when neither the operator nor the project file says otherwise."""

MEMORY_MB = 4096
PIDS = 1024
