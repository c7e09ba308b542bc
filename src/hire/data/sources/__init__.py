"""Sources of triples: delimited text, RDF, SPARQL endpoints, published archives."""
