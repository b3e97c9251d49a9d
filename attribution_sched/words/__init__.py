"""All words in all languages: one catalogue of messages, filled in from numbers; see :func:`.say.say`."""
