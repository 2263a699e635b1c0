"""nvFuser's %kernel_math dumps."""
