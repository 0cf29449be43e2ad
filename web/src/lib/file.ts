// Files that the browser saves.

/** Lines as CSV. A text that a spreadsheet would read as a formula starts with an apostrophe. */
export function csv(rows: (string | number)[][]): string {
  const cell = (v: string | number) => {
    if (typeof v === 'number') return String(v)
    const safe = /^[=+\-@\t\r]/.test(v) ? "'" + v : v
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe
  }
  return rows.map(r => r.map(cell).join(',')).join('\n') + '\n'
}

export function saveFile(name: string, text: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/plain' }))
  link.download = name
  link.click()
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000)
}
