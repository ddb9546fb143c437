"""Values whose size depends on the data, as every front end has them."""
