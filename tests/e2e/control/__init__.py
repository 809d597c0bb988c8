"""An operator in control: answers, steering, approvals, back to any message."""
