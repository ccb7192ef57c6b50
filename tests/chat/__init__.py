"""The chat service and its page, in a real browser, killed and brought back."""
