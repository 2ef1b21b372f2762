-- What was said in a conversation before the part that is still sent to the model, and the place it reaches to.
ALTER TABLE conversations ADD COLUMN summary TEXT;
ALTER TABLE conversations ADD COLUMN summary_until INTEGER;
