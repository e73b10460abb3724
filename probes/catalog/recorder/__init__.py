"""torch's flight recorder: finding its dumps on a node, decoding them, their facts."""
