"""A scheduler that learnt from the exact optimum: an encoder over domains, a decoder that writes plans piece by piece."""
