"""The exact optimum of one decision: every order of domains, every cut, every layout, with a proof."""
