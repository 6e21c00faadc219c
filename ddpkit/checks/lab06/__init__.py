"""Lab 06: asked cases graph hints reducer steps."""
