-- The seeds' `text_search_chunks` and `match_chunks`: the ranking of the server's words and of its vectors, for whoever asks the database.
-- The server itself searches its own index (src/knowledge) and needs none of this. What is a word, a stem, a name or a part of a compound
-- is told here a second time, for SQL; `functions_tests.rs` holds both to the same order.

-- ---------------------------------------------------------------- what is kept

-- A word of a collection as it is written, with its stem in each language; `=` begins a name ("=lh441"). number: a digest of collection
-- and word. flat: the spelling compounds are compared in, null for what is no part of any.
CREATE TABLE vocabulary (
  tenant_id   uuid NOT NULL,
  number      bigint NOT NULL,
  collection  text COLLATE "C" NOT NULL,
  word        text COLLATE "C" NOT NULL,
  stem_de     text COLLATE "C" NOT NULL,
  stem_en     text COLLATE "C" NOT NULL,
  stem_es     text COLLATE "C" NOT NULL,
  function_de boolean NOT NULL,
  function_en boolean NOT NULL,
  function_es boolean NOT NULL,
  flat        text COLLATE "C",
  own_part    text COLLATE "C",
  PRIMARY KEY (tenant_id, number)
);
CREATE INDEX vocabulary_by_stem_de ON vocabulary (tenant_id, collection, stem_de);
CREATE INDEX vocabulary_by_stem_en ON vocabulary (tenant_id, collection, stem_en);
CREATE INDEX vocabulary_by_stem_es ON vocabulary (tenant_id, collection, stem_es);
CREATE INDEX vocabulary_by_flat ON vocabulary (tenant_id, collection, flat);

-- Which chunks show a word, and how often. Not unique by law, so that the indexes stay a tenth of the size.
CREATE TABLE postings (
  tenant_id uuid NOT NULL,
  word      bigint NOT NULL,
  chunk     bigint NOT NULL,
  count     bigint NOT NULL
);
CREATE INDEX postings_by_word ON postings (tenant_id, word);
CREATE INDEX postings_by_chunk ON postings (tenant_id, chunk);

-- How many words a chunk has, read in each language. spoken: the language its document is said to be in, as far as it has an analysis.
CREATE TABLE chunk_lengths (
  tenant_id  uuid NOT NULL,
  collection text COLLATE "C" NOT NULL,
  chunk      bigint NOT NULL,
  spoken     text COLLATE "C",
  words_de   bigint NOT NULL,
  words_en   bigint NOT NULL,
  words_es   bigint NOT NULL,
  PRIMARY KEY (tenant_id, chunk)
);
CREATE INDEX chunk_lengths_by_collection ON chunk_lengths (tenant_id, collection);

-- ---------------------------------------------------------------- words

CREATE TEXT SEARCH DICTIONARY english_words (TEMPLATE = pg_catalog.snowball, Language = english);
CREATE TEXT SEARCH DICTIONARY spanish_words (TEMPLATE = pg_catalog.snowball, Language = spanish);

-- One spelling for every letter. The second half is for databases whose locale knows ASCII alone.
CREATE FUNCTION normal_text(given text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  translate(lower(normalize(given, NFKC)), 'ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞẞ', 'àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþß');

CREATE FUNCTION folded(word text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  CASE WHEN word ~ '^[\u0001-\u007f]*$' THEN word
    ELSE replace(regexp_replace(normalize(word, NFKD), '[\u0300-\u036f]', '', 'g'), 'ß', 'ss') END;

CREATE FUNCTION flat_word(word text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  replace(replace(replace(folded(word), 'ae', 'a'), 'oe', 'o'), 'ue', 'u');

CREATE FUNCTION is_function_word(word text, language text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  CASE language
    WHEN 'de' THEN word = ANY ('{der, die, das, den, dem, des, ein, eine, einer, eines, einem, einen, und, oder, aber, nicht, kein, keine, ist, sind, war,
      waren, wird, werden, wurde, wurden, hat, haben, hatte, hatten, in, im, an, am, auf, aus, bei, mit, nach, von, vom, zu, zum,
      zur, für, fur, über, uber, unter, um, durch, als, auch, es, er, sie, wir, ihr, ich, sich, was, wer, wie, wo, wann, warum,
      welche, welcher, welches, welchen, wen, wem, dass, ob, so, noch, nur, sehr, sein, seine, seiner, ihre, ihrer, dieser, diese,
      dieses, man, kann}')
    WHEN 'en' THEN word = ANY ('{a, an, and, are, as, at, be, but, by, for, if, in, into, is, it, no, not, of, on, or, such, that, the, their, then, there,
      these, they, this, to, was, will, with, what, which, who, whom, how, when, where, why, do, does, did, can, could, should,
      would, has, have, had, been, its, from, about, than, were}')
    WHEN 'es' THEN word = ANY ('{el, la, los, las, un, una, unos, unas, y, o, u, e, pero, no, de, del, a, al, en, con, por, para, sin, sobre, que, qué, quién,
      quien, cuál, cual, cuales, cuáles, cómo, como, cuándo, cuando, dónde, donde, cuánto, cuanto, cuántos, cuantos, cuántas,
      cuantas, es, son, fue, fueron, era, eran, ser, ha, han, se, su, sus, lo, le, les, este, esta, estos, estas, ese, esa, más,
      mas, muy, entre, desde, hasta}')
    ELSE false END;

-- The words of a normalised text in their order, each with what stands between it and the one before. Code points, not classes: what a
-- letter is must not depend on the database's locale.
CREATE FUNCTION text_pieces(normal text) RETURNS TABLE (place bigint, gap text, word text) LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT found.place, found.part[1], found.part[2]
  FROM regexp_matches(normal,
    '([\u0001-\u002f\u003a-\u0060\u007b-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u0300-\u036f\u2000-\u20ff\u2190-\u245f\u2500-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\ufe00-\ufe6f\uff00-\uff0f\uff1a-\uff20\uffe0-\uffff\U0001f000-\U0001ffff]*)'
    '([^\u0001-\u002f\u003a-\u0060\u007b-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u0300-\u036f\u2000-\u20ff\u2190-\u245f\u2500-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\ufe00-\ufe6f\uff00-\uff0f\uff1a-\uff20\uffe0-\uffff\U0001f000-\U0001ffff]+)',
    'g') WITH ORDINALITY AS found (part, place);
END;

-- Names that people write in several ways, each in its joined spelling: "LH 441", "lh-441"; "M&M"; "E-4021".
CREATE FUNCTION text_names(normal text) RETURNS SETOF text LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
  WITH pieces AS MATERIALIZED (
    SELECT place, gap, word, lag(word) OVER (ORDER BY place) AS before,
      word ~ '[0-9]' AS has_digit, word ~ '[^0-9]' AS has_letter FROM text_pieces(normal)
  ), runs AS (
    SELECT *, count(*) FILTER (WHERE NOT (place > 1 AND gap IN ('&', '+', '/', '.', '-', '''', '’'))) OVER (ORDER BY place) AS run FROM pieces
  ), wholes AS (
    SELECT string_agg(word, '' ORDER BY place) AS whole FROM runs GROUP BY run HAVING count(*) > 1
  )
  SELECT whole FROM wholes WHERE whole ~ '[0-9]' OR length(whole) <= 4
  UNION
  SELECT word FROM pieces WHERE has_digit AND has_letter
  UNION
  SELECT before || word FROM pieces
  WHERE octet_length(gap) <= 1 AND (
    (before ~ '^[^0-9]{1,3}$' AND word ~ '^[0-9]')
    OR (before ~ '^[0-9]+$' AND word ~ '^[^0-9]{1,2}$')
    OR (before ~ '^[0-9]+$' AND word ~ '^[0-9]+[^0-9]+$'));
END;

-- ---------------------------------------------------------------- stems

-- ae, oe, ue as ä, ö, ü. Not after another vowel or q, where they are two sounds: "neue", "Frauen", "Quelle".
CREATE FUNCTION umlauts(word text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  done text := '';
  at int := 1;
  pair text;
BEGIN
  IF word !~ '[aou]e' THEN RETURN word; END IF;
  WHILE at <= length(word) LOOP
    pair := substr(word, at, 2);
    IF pair IN ('ae', 'oe', 'ue') AND (at = 1 OR strpos('aeouq', substr(word, at - 1, 1)) = 0) THEN
      done := done || translate(left(pair, 1), 'aou', 'äöü');
      at := at + 2;
    ELSE
      done := done || left(pair, 1);
      at := at + 1;
    END IF;
  END LOOP;
  RETURN done;
END
$$;

-- Snowball's German stemmer as the server has it; the servers' own differs from version to version.
CREATE FUNCTION german_stem(given text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  word text := replace(given, 'ß', 'ss');
  one int;
  two int;
  found text;
BEGIN
  word := regexp_replace(word, '([aeiouyäöü])u(?=[aeiouyäöü])', '\1U', 'g');
  word := regexp_replace(word, '([aeiouyäöüU])y(?=[aeiouyäöü])', '\1Y', 'g');
  -- Where the two regions begin: how many letters are before them.
  one := length(substring(word from '^[^aeiouyäöü]*[aeiouyäöü]+[^aeiouyäöü]'));
  IF one IS NULL THEN RETURN translate(word, 'UYäöü', 'uyaou'); END IF;
  two := one + length(substring(substr(word, one + 1) from '^[^aeiouyäöü]*[aeiouyäöü]+[^aeiouyäöü]'));
  IF length(word) < 3 THEN RETURN translate(word, 'UYäöü', 'uyaou'); END IF;
  one := greatest(one, 3);
  found := substring(word from '(ern|em|er|en|es|e|s)$');
  IF found IS NOT NULL AND length(word) - length(found) >= one THEN
    IF found IN ('e', 'en', 'es') THEN
      word := left(word, -length(found));
      IF word ~ 'niss$' THEN word := left(word, -1); END IF;
    ELSIF found <> 's' OR word ~ '[bdfghklmnrt]s$' THEN
      word := left(word, -length(found));
    END IF;
  END IF;
  found := substring(word from '(est|en|er|st)$');
  IF found IS NOT NULL AND length(word) - length(found) >= one AND (found <> 'st' OR word ~ '.{3}[bdfghklmnt]st$') THEN
    word := left(word, -length(found));
  END IF;
  found := substring(word from '(isch|lich|heit|keit|end|ung|ig|ik)$');
  IF found IS NOT NULL AND length(word) - length(found) >= two THEN
    IF found IN ('end', 'ung') THEN
      word := left(word, -3);
      IF word ~ 'ig$' AND word !~ 'eig$' AND length(word) - 2 >= two THEN word := left(word, -2); END IF;
    ELSIF found IN ('ig', 'ik', 'isch') THEN
      IF word !~ ('e' || found || '$') THEN word := left(word, -length(found)); END IF;
    ELSIF found IN ('lich', 'heit') THEN
      word := left(word, -4);
      IF word ~ '(er|en)$' AND length(word) - 2 >= one THEN word := left(word, -2); END IF;
    ELSE
      word := left(word, -4);
      IF word ~ 'lich$' AND length(word) - 4 >= two THEN word := left(word, -4);
      ELSIF word ~ 'ig$' AND length(word) - 2 >= two THEN word := left(word, -2);
      END IF;
    END IF;
  END IF;
  RETURN translate(word, 'UYäöü', 'uyaou');
END
$$;

CREATE FUNCTION word_stem(word text, language text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE RETURN
  folded(CASE language
    WHEN 'de' THEN german_stem(umlauts(word))
    WHEN 'en' THEN coalesce((ts_lexize('english_words'::regdictionary, word))[1], word)
    ELSE coalesce((ts_lexize('spanish_words'::regdictionary, word))[1], word) END);

-- ---------------------------------------------------------------- keeping it in step

-- The language of a code such as `de-AT`, if it has an analysis.
CREATE FUNCTION analysed_language(code text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  CASE WHEN lower(substring(code from '^[^-_]*')) IN ('de', 'en', 'es') THEN lower(substring(code from '^[^-_]*')) END;

CREATE FUNCTION word_number(collection text, word text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
  ('x' || left(md5(collection || E'\n' || word), 16))::bit(64)::bigint;

-- The words and names of a text, and how often each stands in it.
CREATE FUNCTION text_words(normal text) RETURNS TABLE (word text, count bigint) LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
  SELECT pieces.word, least(count(*), 255) FROM text_pieces(normal) AS pieces GROUP BY pieces.word
  UNION ALL
  SELECT '=' || name, 1 FROM text_names(normal) AS names (name);
END;

-- Indexes chunks that came. Those of one collection come and go under its lock, so nobody else touches its words meanwhile.
CREATE FUNCTION index_chunks(numbers bigint[]) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
-- A plan made while the tables were empty must do for all that comes: by index.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
  WITH texts AS MATERIALIZED (
    SELECT chunks.tenant_id, chunks.collection, chunks.number, analysed_language(documents.language) AS spoken,
      normal_text(concat_ws(E'\n', nullif(btrim(documents.title, E' \t\r\n'), ''), nullif(chunks.heading, ''), nullif(chunks.content, ''))) AS normal
    FROM chunks JOIN documents ON documents.tenant_id = chunks.tenant_id AND documents.id = chunks.document
    WHERE chunks.number = ANY (numbers)
  ), shown AS MATERIALIZED (
    SELECT texts.tenant_id, texts.collection, texts.number, texts.spoken, words.word, words.count,
      word_number(texts.collection, words.word) AS word_number
    FROM texts, LATERAL text_words(texts.normal) AS words
  ), kept AS (
    INSERT INTO postings (tenant_id, word, chunk, count) SELECT tenant_id, word_number, number, count FROM shown
  ), new_words AS MATERIALIZED (
    SELECT DISTINCT shown.tenant_id, shown.collection, shown.word, shown.word_number FROM shown
    WHERE NOT EXISTS (SELECT 1 FROM vocabulary AS known WHERE known.tenant_id = shown.tenant_id AND known.number = shown.word_number)
  ), described AS (
    INSERT INTO vocabulary (tenant_id, number, collection, word, stem_de, stem_en, stem_es, function_de, function_en, function_es, flat, own_part)
    SELECT tenant_id, word_number, collection, word, of_word.de, of_word.en, of_word.es, is_function_word(word, 'de'),
      is_function_word(word, 'en'), is_function_word(word, 'es'), of_word.flat, word_stem(of_word.flat, 'de')
    FROM new_words, LATERAL (
      SELECT CASE WHEN word LIKE '=%' THEN word ELSE word_stem(word, 'de') END AS de,
        CASE WHEN word LIKE '=%' THEN word ELSE word_stem(word, 'en') END AS en,
        CASE WHEN word LIKE '=%' THEN word ELSE word_stem(word, 'es') END AS es,
        CASE WHEN word ~ '^[^=0-9]{4,}$' THEN flat_word(word) END AS flat
    ) AS of_word
  )
  INSERT INTO chunk_lengths (tenant_id, collection, chunk, spoken, words_de, words_en, words_es)
  SELECT texts.tenant_id, texts.collection, texts.number, texts.spoken, coalesce(counted.de, 0), coalesce(counted.en, 0), coalesce(counted.es, 0)
  FROM texts LEFT JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT is_function_word(word, 'de')) AS de, count(*) FILTER (WHERE NOT is_function_word(word, 'en')) AS en,
      count(*) FILTER (WHERE NOT is_function_word(word, 'es')) AS es
    FROM text_pieces(texts.normal)
  ) AS counted ON true;
END
$$;

CREATE FUNCTION index_new_chunks() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM index_chunks((SELECT array_agg(number) FROM arrived));
  RETURN NULL;
END
$$;

-- What went takes its words along; a word that stands nowhere any more is forgotten.
CREATE FUNCTION forget_old_chunks() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
  touched record;
BEGIN
  DELETE FROM chunk_lengths USING gone WHERE chunk_lengths.tenant_id = gone.tenant_id AND chunk_lengths.chunk = gone.number;
  FOR touched IN
    WITH lost AS (
      DELETE FROM postings USING gone WHERE postings.tenant_id = gone.tenant_id AND postings.chunk = gone.number
      RETURNING postings.tenant_id, postings.word
    )
    SELECT tenant_id, array_agg(DISTINCT word) AS words FROM lost GROUP BY tenant_id
  LOOP
    DELETE FROM vocabulary WHERE vocabulary.tenant_id = touched.tenant_id AND vocabulary.number = ANY (touched.words)
      AND NOT EXISTS (SELECT 1 FROM postings WHERE postings.tenant_id = touched.tenant_id AND postings.word = vocabulary.number);
  END LOOP;
  RETURN NULL;
END
$$;

CREATE TRIGGER index_new_chunks AFTER INSERT ON chunks
  REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION index_new_chunks();
CREATE TRIGGER forget_old_chunks AFTER DELETE ON chunks
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION forget_old_chunks();

-- Chunks that were here before.
DO $$
DECLARE
  page bigint[];
  done bigint := 0;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO werkruf_system', current_schema());
  GRANT SELECT, INSERT ON chunks, documents, vocabulary, postings, chunk_lengths TO werkruf_system;
  SET LOCAL ROLE werkruf_system;
  LOOP
    SELECT array_agg(number ORDER BY number) INTO page FROM (SELECT number FROM chunks WHERE number > done ORDER BY number LIMIT 1000) AS next;
    EXIT WHEN page IS NULL;
    PERFORM index_chunks(page);
    done := page[cardinality(page)];
  END LOOP;
  RESET ROLE;
END
$$;

-- ---------------------------------------------------------------- asking

-- What a collection speaks: the languages its chunks are read in, and which of them chunks in none of these are read in. A guessed
-- language counts from one document in fifty on.
CREATE FUNCTION spoken_languages(the_tenant uuid, the_collection text, OUT languages text[], OUT main text) LANGUAGE sql STABLE
BEGIN ATOMIC
  WITH told AS (
    SELECT language AS code, guessed, count(*) AS documents, analysed_language(language) AS analysed,
      sum(count(*)) FILTER (WHERE language IS NOT NULL) OVER () AS all_documents
    FROM documents WHERE tenant_id = the_tenant AND collection = the_collection GROUP BY language, guessed
  ), spoken AS (
    SELECT analysed, sum(documents) AS documents, bool_or(NOT guessed OR documents * 50 >= all_documents) AS counts
    FROM told WHERE analysed IS NOT NULL GROUP BY analysed
  )
  SELECT coalesce(array_agg(analysed ORDER BY analysed), '{}'), (array_agg(analysed ORDER BY documents DESC, analysed))[1]
  FROM spoken WHERE counts;
END;

-- The parts of German words in flat spelling, over the collection's own vocabulary; a word that has none is its own.
CREATE FUNCTION compound_parts(the_tenant uuid, the_collection text, words text[]) RETURNS TABLE (flat text, part text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  spoken record;
BEGIN
  SELECT * INTO spoken FROM spoken_languages(the_tenant, the_collection);
  RETURN QUERY
  WITH cuts AS MATERIALIZED (
    SELECT word, cut, left(word, cut) AS head, substr(word, cut + 1) AS tail
    FROM (SELECT DISTINCT unnest(words) AS word) AS given, generate_series(4, length(word) - 4) AS cut WHERE word ~ '^[^0-9]{8,}$'
  ), tried AS MATERIALIZED (
    SELECT word, cut, 'tail' AS side, tail AS piece FROM cuts
    UNION ALL SELECT word, cut, 'ending', left(tail, -length(ending)) FROM cuts, unnest('{en,e,n,s,er,es}'::text[]) AS ending
      WHERE tail LIKE '%' || ending AND length(tail) - length(ending) >= 4
    UNION ALL SELECT word, cut, 'head', head FROM cuts
    UNION ALL SELECT word, cut, 'head', left(head, -length(link)) FROM cuts, unnest('{s,n,en,es,er,e}'::text[]) AS link
      WHERE head LIKE '%' || link AND length(head) - length(link) >= 4
    UNION ALL SELECT word, cut, 'head', head || missing FROM cuts, unnest('{e,en,n}'::text[]) AS missing
    -- What a part is without the letter that links it.
    UNION ALL SELECT word, cut, 'link', left(head, -1) FROM cuts WHERE head ~ '[sn]$'
    UNION ALL SELECT word, cut, 'link', left(tail, -1) FROM cuts WHERE tail ~ '[sn]$'
  ), known AS MATERIALIZED (
    SELECT pieces.piece, count(*) AS chunks
    FROM (SELECT DISTINCT piece FROM tried) AS pieces
    JOIN vocabulary ON vocabulary.tenant_id = the_tenant AND vocabulary.collection = the_collection AND vocabulary.flat = pieces.piece
    JOIN postings ON postings.tenant_id = the_tenant AND postings.word = vocabulary.number
    JOIN chunk_lengths ON chunk_lengths.tenant_id = the_tenant AND chunk_lengths.chunk = postings.chunk
    WHERE NOT CASE CASE WHEN chunk_lengths.spoken = ANY (spoken.languages) THEN chunk_lengths.spoken ELSE coalesce(spoken.main, 'en') END
      WHEN 'de' THEN vocabulary.function_de WHEN 'en' THEN vocabulary.function_en ELSE vocabulary.function_es END
    GROUP BY pieces.piece
  ), weighed AS (
    SELECT tried.word, tried.cut, max(chunks) FILTER (WHERE side = 'tail') AS tail, max(chunks) FILTER (WHERE side = 'ending') AS ending,
      max(chunks) FILTER (WHERE side = 'head') AS head
    FROM tried JOIN known USING (piece) GROUP BY tried.word, tried.cut
  ), best AS (
    SELECT DISTINCT ON (weighed.word) weighed.word, weighed.cut FROM weighed WHERE head * coalesce(tail, ending) > 0
    ORDER BY weighed.word, head * coalesce(tail, ending) DESC, weighed.cut
  ), parts AS (
    SELECT cuts.word, unnest(ARRAY[head, tail]) AS part FROM best JOIN cuts USING (word, cut)
  )
  SELECT parts.word, word_stem(CASE WHEN parts.part ~ '[sn]$' AND EXISTS (SELECT 1 FROM known WHERE known.piece = left(parts.part, -1))
    THEN left(parts.part, -1) ELSE parts.part END, 'de') FROM parts
  UNION ALL
  SELECT given.word, word_stem(given.word, 'de') FROM (SELECT DISTINCT unnest(words) AS word) AS given
  WHERE NOT EXISTS (SELECT 1 FROM best WHERE best.word = given.word);
END
$$;

-- What a question asks for, and how much each weighs. kind: a stem, a part of a compound, a name.
CREATE FUNCTION question_terms(the_tenant uuid, the_collection text, question text) RETURNS TABLE (kind text, term text, weight float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  normal constant text := normal_text(question);
  languages text[] := (spoken_languages(the_tenant, the_collection)).languages;
  words text[];
BEGIN
  languages := CASE WHEN languages = '{}' THEN '{de,en,es}' ELSE languages END;
  SELECT array_agg(pieces.word ORDER BY place) FILTER (WHERE carries) INTO words
  FROM (SELECT word, place, NOT EXISTS (SELECT 1 FROM unnest(languages) AS language WHERE is_function_word(word, language)) AS carries
        FROM text_pieces(normal) WHERE place <= 256) AS pieces;
  -- A question of function words alone is still a question.
  IF words IS NULL THEN
    SELECT array_agg(pieces.word ORDER BY place) INTO words FROM text_pieces(normal) AS pieces WHERE place <= 256;
  END IF;
  RETURN QUERY
  SELECT asked.kind, asked.term, sum(asked.weight) FROM (
    SELECT 'stem' AS kind, stems.stem AS term, 1.0::float8 AS weight
    FROM unnest(words) WITH ORDINALITY AS given (word, place),
      LATERAL (SELECT DISTINCT word_stem(given.word, language) AS stem FROM unnest(languages) AS language) AS stems
    UNION ALL
    SELECT 'part', parts.part, 0.5 FROM unnest(words) AS given (word)
    JOIN compound_parts(the_tenant, the_collection, CASE WHEN 'de' = ANY (languages) THEN
      ARRAY(SELECT flat_word(word) FROM unnest(words) AS word WHERE word ~ '^[^0-9]{4,}$') ELSE '{}' END) AS parts
      ON parts.flat = flat_word(given.word) AND given.word ~ '^[^0-9]{4,}$'
    UNION ALL
    SELECT 'name', '=' || name, 1.0 FROM text_names(normal) AS names (name)
  ) AS asked GROUP BY asked.kind, asked.term;
END
$$;

-- BM25 over the words of one collection: what the server's `bm25` and `rank_bm25` say.
CREATE FUNCTION word_scores(the_tenant uuid, the_collection text, question text) RETURNS TABLE (chunk bigint, bm25 float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  spoken record;
  shelf record;
  kinds text[];
  terms text[];
  weights float8[];
  parts text[];
  compounds text[];
BEGIN
  SELECT * INTO spoken FROM spoken_languages(the_tenant, the_collection);
  SELECT count(*) AS chunks, greatest(avg(CASE CASE WHEN lengths.spoken = ANY (spoken.languages) THEN lengths.spoken ELSE coalesce(spoken.main, 'en') END
      WHEN 'de' THEN words_de WHEN 'en' THEN words_en ELSE words_es END), 1)::float8 AS mean
    INTO shelf FROM chunk_lengths AS lengths WHERE lengths.tenant_id = the_tenant AND lengths.collection = the_collection;
  SELECT array_agg(kind), array_agg(term), array_agg(weight), array_agg(term) FILTER (WHERE kind = 'part') INTO kinds, terms, weights, parts
    FROM question_terms(the_tenant, the_collection, question);
  -- Only a word that holds a part as it is spelled can have it for one.
  SELECT array_agg(DISTINCT flat) INTO compounds FROM vocabulary, unnest(parts) AS part
    WHERE vocabulary.tenant_id = the_tenant AND vocabulary.collection = the_collection AND strpos(vocabulary.flat, part) > 0;
  RETURN QUERY
  WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(kinds, terms, weights) AS asked (kind, term, weight)
  ), forms AS MATERIALIZED (
    -- language: in which a chunk must be read to show the term so; null for a name.
    SELECT asked.kind, asked.term, asked.weight, 'de' AS language, number FROM asked JOIN vocabulary ON tenant_id = the_tenant AND collection = the_collection
      AND stem_de = asked.term WHERE kind = 'stem' AND NOT function_de AND word NOT LIKE '=%'
    UNION ALL SELECT asked.kind, asked.term, asked.weight, 'en', number FROM asked JOIN vocabulary ON tenant_id = the_tenant AND collection = the_collection
      AND stem_en = asked.term WHERE kind = 'stem' AND NOT function_en AND word NOT LIKE '=%'
    UNION ALL SELECT asked.kind, asked.term, asked.weight, 'es', number FROM asked JOIN vocabulary ON tenant_id = the_tenant AND collection = the_collection
      AND stem_es = asked.term WHERE kind = 'stem' AND NOT function_es AND word NOT LIKE '=%'
    UNION ALL SELECT asked.kind, asked.term, asked.weight, NULL, word_number(the_collection, asked.term) FROM asked WHERE kind = 'name'
    UNION ALL SELECT DISTINCT asked.kind, asked.term, asked.weight, 'de', number FROM asked
      JOIN compound_parts(the_tenant, the_collection, compounds) AS compound ON compound.part = asked.term
      JOIN vocabulary ON tenant_id = the_tenant AND collection = the_collection AND vocabulary.flat = compound.flat
      WHERE kind = 'part' AND NOT function_de
  ), shown AS MATERIALIZED (
    SELECT forms.kind, forms.term, forms.weight, postings.chunk, sum(postings.count)::float8 AS times,
      min(CASE CASE WHEN lengths.spoken = ANY (spoken.languages) THEN lengths.spoken ELSE coalesce(spoken.main, 'en') END
        WHEN 'de' THEN words_de WHEN 'en' THEN words_en ELSE words_es END)::float8 AS words
    FROM forms JOIN postings ON postings.tenant_id = the_tenant AND postings.word = forms.number
    JOIN chunk_lengths AS lengths ON lengths.tenant_id = the_tenant AND lengths.chunk = postings.chunk
    WHERE forms.language IS NULL
      OR forms.language = CASE WHEN lengths.spoken = ANY (spoken.languages) THEN lengths.spoken ELSE coalesce(spoken.main, 'en') END
    GROUP BY forms.kind, forms.term, forms.weight, postings.chunk
  ), weighed AS (
    SELECT shown.chunk, shown.times, shown.words, shown.weight, count(*) OVER (PARTITION BY shown.kind, shown.term) AS chunks FROM shown
  )
  SELECT weighed.chunk, sum(weight * ln(1 + (shelf.chunks - weighed.chunks + 0.5) / (weighed.chunks + 0.5))
    * times / (times + 1.2 * (1 - 0.65 + 0.65 * weighed.words / shelf.mean)))::float8
  FROM weighed GROUP BY weighed.chunk;
END
$$;

-- The seeds' search by words. Everybody sees what their rows show them; whoever sees several tenants gets the best of all.
CREATE FUNCTION text_search_chunks(query_text text, match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, bm25 float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT chunks.id, documents.document_id, documents.title, chunks.content, scores.bm25
  FROM collections AS shelf, LATERAL word_scores(shelf.tenant_id, shelf.name, query_text) AS scores
  JOIN chunks ON chunks.number = scores.chunk
  JOIN documents ON documents.tenant_id = chunks.tenant_id AND documents.id = chunks.document
  WHERE shelf.name = text_search_chunks.collection AND chunks.tenant_id = shelf.tenant_id
  -- Equal scores are equal to the last digit only on paper.
  ORDER BY round(scores.bm25::numeric, 5) DESC, documents.document_id, chunks.position
  LIMIT greatest(match_count, 0);
END
$$;

-- ---------------------------------------------------------------- vectors

-- Little-endian floats as numbers.
CREATE FUNCTION floats_of(vector bytea) RETURNS real[] LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT RETURN (
  SELECT array_agg(CASE
      WHEN raw.exponent = 0 THEN sign * raw.fraction * 2.0::float8 ^ (-149)
      ELSE sign * (8388608 + raw.fraction) * 2.0::float8 ^ (raw.exponent - 150) END ORDER BY at)::real[]
  FROM generate_series(0, octet_length(vector) / 4 - 1) AS at,
    LATERAL (SELECT CASE WHEN get_byte(vector, at * 4 + 3) > 127 THEN -1 ELSE 1 END AS sign,
      (get_byte(vector, at * 4 + 3) & 127) * 2 + (get_byte(vector, at * 4 + 2) >> 7) AS exponent,
      (get_byte(vector, at * 4 + 2) & 127) * 65536 + get_byte(vector, at * 4 + 1) * 256 + get_byte(vector, at * 4) AS fraction) AS raw);

ALTER TABLE chunk_vectors ADD COLUMN floats real[] GENERATED ALWAYS AS (floats_of(vector)) STORED;

-- The cosine without pgvector.
CREATE FUNCTION cosine_of(ours real[], theirs real[]) RETURNS float8 LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT RETURN (
  SELECT sum(a::float8 * b) / nullif(sqrt(sum(a::float8 * a)) * sqrt(sum(b::float8 * b)), 0) FROM unnest(ours, theirs) AS pair (a, b));

-- The seeds' search by meaning: the cosine with every vector of the collection's newest model, by pgvector where it is installed.
CREATE FUNCTION match_chunks(query_embedding real[], match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, similarity float8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  home text := (SELECT nspname FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector');
  nearness text := CASE WHEN home IS NULL THEN 'cosine_of(vectors.floats, $1)'
    ELSE format('1 - (vectors.floats::%1$I.vector OPERATOR(%1$I.<=>) $1::%1$I.vector)', home) END;
  size bigint;
BEGIN
  SELECT cardinality(floats) INTO size FROM chunk_vectors AS vectors
    WHERE vectors.collection = match_chunks.collection AND floats IS NOT NULL ORDER BY change DESC LIMIT 1;
  IF size <> coalesce(cardinality(query_embedding), 0) THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
      MESSAGE = format('the embedding has %s dimensions, those of collection %s have %s', coalesce(cardinality(query_embedding), 0), collection, size);
  END IF;
  RETURN QUERY EXECUTE format('
    SELECT chunks.id, documents.document_id, documents.title, chunks.content, found.similarity
    FROM (
      SELECT vectors.tenant_id, vectors.chunk, %s AS similarity
      FROM collections AS shelf, LATERAL (
        SELECT newest.model FROM chunk_vectors AS newest WHERE newest.tenant_id = shelf.tenant_id AND newest.collection = shelf.name
        ORDER BY newest.change DESC LIMIT 1) AS newest
      JOIN chunk_vectors AS vectors ON vectors.model = newest.model
      WHERE shelf.name = $3 AND vectors.tenant_id = shelf.tenant_id AND vectors.collection = shelf.name
        AND cardinality(vectors.floats) = cardinality($1)
    ) AS found
    JOIN chunks ON chunks.tenant_id = found.tenant_id AND chunks.number = found.chunk
    JOIN documents ON documents.tenant_id = chunks.tenant_id AND documents.id = chunks.document
    WHERE found.similarity = found.similarity
    ORDER BY round(found.similarity::numeric, 6) DESC, documents.document_id, chunks.position
    LIMIT greatest($2, 0)', nearness)
  USING query_embedding, match_count, match_chunks.collection;
END
$$;

-- As the seeds call it: '[0.123, -0.456, …]'.
CREATE FUNCTION match_chunks(query_embedding text, match_count integer DEFAULT 6, collection text DEFAULT 'default')
RETURNS TABLE (id uuid, document_id text, title text, content text, similarity float8) LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT * FROM match_chunks(translate(query_embedding, '[]', '{}')::real[], match_count, collection);
END;
