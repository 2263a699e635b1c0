"""The search's own cost, and its covers beside simpler ways of cutting."""
