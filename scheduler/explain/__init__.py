"""Why a plan is as it is: cuts between kernels, and what each family costs for a contraction."""
