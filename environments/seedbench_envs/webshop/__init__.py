"""WebShop: catalogue, search, pages, reward and goals, without the original's server, Java or spaCy at run time."""
