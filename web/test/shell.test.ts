import test from 'node:test'
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { shellWord } from '../src/lib/shell'

test('a shell reads a name as one word', () => {
  for (const name of ['shop/web', 'a b', "it's", '$(id)', '`id`', 'a;b', '"', '\\', '*', '~', '']) {
    assert.equal(execFileSync('sh', ['-c', `printf '%s|' ${shellWord(name)}`], { encoding: 'utf8' }), name + '|')
  }
})

test('characters that a terminal acts on are escaped', () => {
  assert.equal(shellWord('a\nreboot\x1b[201~\u202e\u2028'), "'a\\u000areboot\\u001b[201~\\u202e\\u2028'")
})
