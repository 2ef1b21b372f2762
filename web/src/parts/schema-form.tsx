/** Fields made from a JSON Schema. */
import { t, word } from '../i18n';
import { type FormValue, type Schema, shapeOf } from './schema';

interface Props {
  schema: Schema;
  root: Schema;
  value: { [name: string]: FormValue };
  onChange: (value: { [name: string]: FormValue }) => void;
}

export function SchemaFields({ schema, root, value, onChange }: Props) {
  const names = Object.keys(schema.properties ?? {});
  if (!names.length) return <p class="muted">{t('no_arguments')}</p>;
  return (
    <div class="form-grid">
      {names.map((name) => (
        <SchemaField
          key={name}
          name={name}
          schema={schema.properties?.[name] ?? {}}
          root={root}
          required={schema.required?.includes(name) ?? false}
          value={value[name]}
          onChange={(next) => onChange({ ...value, [name]: next })}
        />
      ))}
    </div>
  );
}

interface FieldProps {
  name: string;
  schema: Schema;
  root: Schema;
  required: boolean;
  value: FormValue | undefined;
  onChange: (value: FormValue) => void;
}

function SchemaField({ name, schema, root, required, value, onChange }: FieldProps) {
  const shape = shapeOf(schema, root);
  const description = schema.description ?? shape.schema.description;
  if (shape.kind === 'object') {
    return (
      <fieldset class="fieldset">
        <legend>{name}</legend>
        {description && <p class="field-hint">{description}</p>}
        <SchemaFields schema={shape.schema} root={root} value={typeof value === 'object' ? value : {}} onChange={onChange} />
      </fieldset>
    );
  }
  const text = typeof value === 'string' ? value : '';
  const set = (event: Event) => onChange((event.target as HTMLInputElement).value);
  const needed = required && !shape.nullable;
  const common = { name: `arg-${name}`, value: text, onInput: set };
  let control;
  if (shape.kind === 'choice' || shape.kind === 'boolean') {
    const choices = shape.kind === 'boolean' ? ['true', 'false'] : shape.choices.map(String);
    control = (
      <select {...common}>
        <option value="">{needed ? t('choose') : t('not_set')}</option>
        {choices.map((choice) => (
          <option value={choice}>{shape.kind === 'boolean' ? word(choice) : choice}</option>
        ))}
      </select>
    );
  } else if (shape.kind === 'lines' || shape.kind === 'json') {
    control = <textarea {...common} rows={3} spellcheck={false} placeholder={shape.kind === 'lines' ? t('one_per_line') : 'JSON'} />;
  } else {
    const { minimum, maximum } = shape.schema;
    if (shape.kind === 'date') control = <input {...common} type="date" />;
    else if (shape.kind === 'text') control = <input {...common} type="text" />;
    else control = <input {...common} type="number" step={shape.kind === 'number' ? 'any' : 1} min={minimum} max={maximum} />;
  }
  return (
    <label class="field">
      <span class="field-label">
        <code>{name}</code>
        {needed && <span class="required"> {t('required')}</span>}
      </span>
      {control}
      {description && <span class="field-hint">{description}</span>}
    </label>
  );
}
