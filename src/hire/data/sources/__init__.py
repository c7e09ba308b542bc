"""Where triples come from: delimited text, RDF, SPARQL endpoints, published archives."""
