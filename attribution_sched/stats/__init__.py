"""Statistics that every room uses: the interval of a mean, and the paired bootstrap."""
