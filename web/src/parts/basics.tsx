/** Small parts that every view uses. */
import type { ComponentChildren } from 'preact';
import { useSignal } from '@preact/signals';
import type { ApiError } from '../api/client';
import { t, word } from '../i18n';
import { Icon, type IconName } from './icons';
import type { Resource } from '../resource';

/** What a status means to a reader. Each meaning has one colour. */
export function tone(status: string): string {
  switch (status) {
    case 'succeeded':
    case 'completed':
    case 'ok':
    case 'approved':
    case 'sent':
    case 'delivered':
    case 'read':
    case 'accepted':
    case 'resolved':
    case 'connected':
      return 'good';
    case 'failed':
    case 'timeout':
    case 'dead':
    case 'denied':
    case 'error':
    case 'open':
      return 'bad';
    case 'awaiting_approval':
    case 'pending':
    case 'held':
    case 'expired':
    case 'warning':
      return 'wait';
    case 'running':
    case 'queued':
    case 'planning':
    case 'acting':
    case 'finalizing':
    case 'sending':
    case 'connecting':
      return 'busy';
    default:
      return 'plain';
  }
}

export function Status({ status }: { status: string }) {
  return <span class={`status ${tone(status)}`}>{word(status)}</span>;
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <p class="empty-title">{title}</p>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

export function ErrorBox({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="error-box" role="alert">
      <p>
        <strong>{error.status === 403 ? t('not_allowed') : error.status === 0 ? t('server_unreachable') : error.message}</strong>
        {error.status === 403 && <span> {error.message}</span>}
      </p>
      <p class="muted">
        <code>{error.code}</code>
      </p>
      {retry && (
        <button type="button" class="button" onClick={retry}>
          {t('try_again')}
        </button>
      )}
    </div>
  );
}

/** Shows a resource: its data, its error, or that it is being loaded. Data stays in sight while a reload fails. */
export function Loaded<T>({ of, children }: { of: Resource<T>; children: (data: T) => ComponentChildren }) {
  const data = of.data.value;
  const error = of.error.value;
  if (data === undefined) {
    return error ? (
      <ErrorBox error={error} retry={() => void of.reload()} />
    ) : (
      <p class="loading" role="status">
        {t('loading')}
      </p>
    );
  }
  return (
    <>
      {error && <ErrorBox error={error} retry={() => void of.reload()} />}
      {children(data)}
    </>
  );
}

/** A button whose work takes time: it is off meanwhile, and shows why the work failed. */
export function ActionButton(props: {
  action: () => Promise<unknown>;
  label: string;
  kind?: 'primary' | 'danger' | 'quiet';
  testid?: string;
  icon?: IconName;
  disabled?: boolean;
}) {
  const busy = useSignal(false);
  const failed = useSignal<string | null>(null);
  const run = async () => {
    if (busy.value) return;
    busy.value = true;
    failed.value = null;
    try {
      await props.action();
    } catch (error) {
      failed.value = error instanceof Error ? error.message : String(error);
    } finally {
      busy.value = false;
    }
  };
  return (
    <span class="action">
      <button type="button" class={`button ${props.kind ?? ''}`} data-testid={props.testid} disabled={busy.value || props.disabled} onClick={() => void run()}>
        {props.icon && <Icon name={props.icon} />}
        {props.label}
      </button>
      {failed.value && (
        <span class="action-error" role="alert">
          {failed.value}
        </span>
      )}
    </span>
  );
}

export function Page({ title, intro, actions, children }: { title: string; intro?: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="page">
      <header class="page-head">
        <div>
          <h1>{title}</h1>
          {intro && <p class="intro">{intro}</p>}
        </div>
        {actions && <div class="page-actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

export function Section({ title, children, actions }: { title: string; children: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <section class="section">
      <div class="section-head">
        <h2>{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}

/** Names and values. */
export function Facts({ rows, large = false }: { rows: [string, ComponentChildren][]; large?: boolean }) {
  return (
    <dl class={`facts ${large ? 'large' : ''}`}>
      {rows.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Field({ label, hint, children }: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      {children}
      {hint && <span class="field-hint">{hint}</span>}
    </label>
  );
}

/** A value as indented JSON. Long text is cut, because a browser lays out every line. */
const MAX_SHOWN = 64_000;

export function Json({ value, testid, label }: { value: unknown; testid?: string; label?: string }) {
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '');
  const whole = useSignal(false);
  const cut = text.length > MAX_SHOWN && !whole.value;
  return (
    <>
      <pre class="json" tabIndex={0} role="group" aria-label={label} data-testid={testid}>
        {cut ? text.slice(0, MAX_SHOWN) : text}
      </pre>
      {cut && (
        <button type="button" class="button quiet" onClick={() => (whole.value = true)}>
          {t('show_all')}
        </button>
      )}
    </>
  );
}
