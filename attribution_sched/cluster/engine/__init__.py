"""The compiled engine: many clusters side by side, from decision to decision."""
