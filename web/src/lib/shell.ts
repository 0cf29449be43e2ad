// Commands to copy: names in them come from outside, and a shell must read each as one word.

/** Text as one word of a POSIX shell; characters that a terminal acts on are escaped. */
export function shellWord(text: string): string {
  const safe = text.replace(/[\p{C}\u2028\u2029]/gu, c => `\\u${c.codePointAt(0)!.toString(16).padStart(4, '0')}`)
  return /^[\w+./:,@-]+$/.test(safe) ? safe : `'${safe.replaceAll("'", `'\\''`)}'`
}
