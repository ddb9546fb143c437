"""The roof: each way to compile, load and adapt models, put together from the rooms below."""
