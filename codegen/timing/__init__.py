"""The protocol of timing kernels against each other, and what disturbs it."""
