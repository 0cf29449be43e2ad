// A server for tests of the page alone: the bundle with its policy, and made-up answers that a test can replace.
import { createServer } from 'node:http'
import { readFileSync, readdirSync } from 'node:fs'
import { gzipSync } from 'node:zlib'
import * as data from './data.mjs'

const dist = new URL('../../dist/', import.meta.url)
const types = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' }
// The policy of web/assets.go.
const policy = readFileSync(new URL('../../assets.go', import.meta.url), 'utf8').match(/ContentSecurityPolicy = "([^"]+)" \+\s*"([^"]+)"/)

const base = '/api/dashboard/v1'

/** Starts the server. state.answers replaces an answer by a route, as a value or a function of the request; state.requests lists what was asked. */
export async function startFixture({ rows = 400 } = {}) {
  const files = new Map(readdirSync(dist).map(name => [name, readFileSync(new URL(name, dist))]))
  const list = gzipSync(JSON.stringify(data.worklist(rows)))
  const state = { answers: {}, requests: [], loggedIn: true }
  const routes = {
    '/session': () => state.loggedIn ? data.session : { ...data.session, authenticated: false, user: '', clusters: [], csrfToken: '' },
    '/overview': data.overview, '/worklist': () => list, '/workload': q => data.workload(q.get('namespace'), q.get('name')),
    '/series': q => data.series(Number(q.get('from')), Number(q.get('to')), Number(q.get('points') ?? 1200)), '/whatif': data.whatIf,
    '/autoscaling': () => data.autoscaling, '/forecast': data.forecast, '/nodes': data.nodes, '/placement': data.placement, '/cost': q => data.cost(q.get('by') ?? 'namespace'), '/rules': (_, body) => body ? { created: !body.dryRun, name: 'new', selected: 12, targets: [{ cluster: 'prod', namespace: 'shop', kind: 'Deployment', name: 'web' }], rows: data.worklist(3).rows } : data.rules,
    '/health': () => data.health,
    '/login': (_, body) => { if (body.token !== 'good') return failure(401, 'Unauthenticated', 'the token is not valid'); state.loggedIn = true; return data.session },
    '/logout': () => { state.loggedIn = false; return {} },
    '/export': (_, body) => `# ${body.format}\n` + body.items.map(i => `- ${i.namespace}/${i.name}\n`).join(''),
    '/action': (_, body) => ({ dryRun: body.dryRun, results: body.items.map((item, i) => i % 5 === 4 ? { item, ok: false, error: { reason: 'Forbidden', message: 'you may not patch this Recommendation', right: 'patch recommendations.analysis.crane.io in namespace ' + item.namespace } } : { item, ok: true, message: 'would lower the requests of 6 pods', requests: [{ object: 'pods/web-1/resize', patch: 'spec: {}\n' }] }) }),
  }
  const server = createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost')
    response.setHeader('Content-Security-Policy', policy[1] + policy[2])
    if (!url.pathname.startsWith(base)) return sendFile(files, url.pathname, response)
    const chunks = []
    request.on('data', c => chunks.push(c)).on('end', () => {
      const route = url.pathname.slice(base.length)
      const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined
      state.requests.push({ method: request.method, route, query: url.searchParams, body, csrf: request.headers['x-csrf-token'] })
      const known = state.answers[route] ?? routes[route]
      let answer = typeof known === 'function' ? known(url.searchParams, body) : known ?? failure(404, 'NotFound', 'no such route')
      if (request.method === 'POST' && route !== '/login' && request.headers['x-csrf-token'] !== 'csrf') answer = failure(403, 'CSRF', 'the token of the session is missing')
      if (answer === 'drop') return request.socket.destroy()
      if (Buffer.isBuffer(answer)) return response.setHeader('Content-Type', 'application/json').setHeader('Content-Encoding', 'gzip').end(answer)
      if (typeof answer === 'string') return response.setHeader('Content-Type', 'text/plain').end(answer)
      response.writeHead(answer.status ?? 200, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer.status ? answer.body : answer))
    })
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  return { origin: `http://127.0.0.1:${server.address().port}`, state, close: () => { server.closeAllConnections(); server.close() } }
}

export function failure(status, reason, message, more = {}) {
  return { status, body: { error: { reason, message, ...more } } }
}

function sendFile(files, path, response) {
  const name = files.has(path.slice(1)) ? path.slice(1) : 'index.html'
  response.setHeader('Content-Type', types[name.split('.').at(-1)]).end(files.get(name))
}
