"""What `fusion_ir.build` is made of: promotion and broadcasting, then one file per group of functions."""
