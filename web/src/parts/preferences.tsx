/** Language and theme of the page. */
import { type Language, language, LANGUAGES, setLanguage, t } from '../i18n';
import { dark, setTheme } from '../settings';
import { Icon } from './icons';

export function LanguageAndTheme() {
  return (
    <div class="preferences">
      <select class="small" aria-label={t('language')} data-testid="language" value={language.value} onChange={(event) => setLanguage(event.currentTarget.value as Language)}>
        {Object.entries(LANGUAGES).map(([code, name]) => (
          <option value={code} lang={code}>
            {name}
          </option>
        ))}
      </select>
      <button type="button" class="button quiet small" data-testid="theme" aria-pressed={dark.value} onClick={() => setTheme(dark.value ? 'light' : 'dark')}>
        <Icon name={dark.value ? 'sun' : 'moon'} />
        <span class="visually-hidden">{t('dark_theme')}</span>
      </button>
    </div>
  );
}
