"""A run as one file to forward: HTML with pictures, Markdown, or JSON, all from the same gathered numbers."""
