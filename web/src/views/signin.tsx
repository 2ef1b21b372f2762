/** Sign-in with a key. The link that the server prints signs in without this page. */
import { useSignal } from '@preact/signals';
import { ApiError } from '../api/client';
import { t } from '../i18n';
import { Field } from '../parts/basics';
import { LanguageAndTheme } from '../parts/preferences';
import { BASE, open, query } from '../router';
import { signIn } from '../session';

export function SignInView() {
  const key = useSignal('');
  const busy = useSignal(false);
  const problem = useSignal<string | null>(query.value.has('token') || query.value.has('error') ? t('signin_link_used') : null);
  const submit = async () => {
    if (!key.value.trim() || busy.value) return;
    busy.value = true;
    problem.value = null;
    try {
      await signIn(key.value.trim());
      if (window.location.pathname.startsWith(`${BASE}/signin`)) open(`${BASE}/`, true);
    } catch (error) {
      problem.value = error instanceof ApiError && error.status === 401 ? t('signin_wrong') : error instanceof Error ? error.message : String(error);
    } finally {
      busy.value = false;
    }
  };
  return (
    <main class="signin">
      <form
        class="card signin-card"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h1>
          <img src={`${BASE}/favicon.svg`} alt="" width="32" height="32" /> Werkruf
        </h1>
        <p>{t('signin_intro')}</p>
        <Field label={t('api_key')} hint={t('signin_hint')}>
          <input type="password" autocomplete="current-password" data-testid="signin-key" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} />
        </Field>
        {problem.value && (
          <p class="action-error" role="alert">
            {problem.value}
          </p>
        )}
        <button type="submit" class="button primary wide" data-testid="signin-submit" disabled={busy.value}>
          {t('signin')}
        </button>
        <LanguageAndTheme />
      </form>
    </main>
  );
}
