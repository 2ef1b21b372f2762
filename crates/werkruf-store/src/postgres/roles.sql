-- The three roles, made where they are missing. They belong to the whole cluster, so another database may be making the same
-- ones at this moment; and a user who may not make roles is fine where somebody else has made them.
DO $$
DECLARE
  wanted text;
  held text := CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['werkruf_app', 'werkruf_system', 'werkruf_operator'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
      EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL;
        WHEN insufficient_privilege THEN
          RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format(
            'the role %s is missing and %s may not make it; let an administrator run: CREATE ROLE %s NOLOGIN; GRANT %s TO %s',
            wanted, current_user, wanted, wanted, current_user);
      END;
    END IF;
    IF NOT pg_has_role(current_user, wanted, held) THEN
      BEGIN
        EXECUTE format('GRANT %I TO %I', wanted, current_user);
      EXCEPTION
        WHEN unique_violation OR internal_error THEN NULL; -- given by somebody else at this moment
        WHEN insufficient_privilege THEN
          RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format(
            '%s is no member of %s; let an administrator run: GRANT %s TO %s', current_user, wanted, wanted, current_user);
      END;
    END IF;
  END LOOP;
END
$$;
