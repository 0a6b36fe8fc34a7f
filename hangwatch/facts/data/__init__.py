"""The data that ranks drew, loader by loader and epoch by epoch."""
