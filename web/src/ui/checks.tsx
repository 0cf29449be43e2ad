/** A group of check boxes; none chosen means what the hint says. */
export function CheckGroup({ label, hint, options, chosen, onChange }: {
  label: string; hint?: string; options: readonly string[]; chosen: readonly string[]; onChange: (chosen: string[]) => void
}) {
  return (
    <fieldset class="field whole">
      <legend>{label}</legend>
      <div class="row">
        {options.map(o => (
          <label class="check" key={o}>
            <input type="checkbox" checked={chosen.includes(o)} onChange={() => onChange(chosen.includes(o) ? chosen.filter(c => c !== o) : [...chosen, o])} />{o}
          </label>
        ))}
      </div>
      {hint && <span class="hint muted">{hint}</span>}
    </fieldset>
  )
}
