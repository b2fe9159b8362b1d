"""The demo: two servers, an origin, web, scheduler and worker, and what can be seen of them."""
