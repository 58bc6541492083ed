// A model from this page's own origin, kept in the browser's private file system: fetched once, resumed where it broke off.

const PIECE = 8 << 20; // bytes that are fetched and kept at a time: at most so much is fetched twice

// The bytes of the model at `url`. `progress(done, total)` is called as they come, and ends it by returning false.
export async function fetch_model(url, progress) {
  const head = await fetch(url, { method: 'HEAD' });
  if (!head.ok) {
    throw new Error(head.status === 404
      ? 'the server of this page holds no model; drop a GGUF file on the window, or open the toy'
      : `the server of this page answered ${head.status}`);
  }
  const total = Number(head.headers.get('content-length'));
  if (!(total > 0)) throw new Error('the server does not say how large the model is');
  if (total > MOST) throw new Error(`a model of ${mega(total)} MB is more than a page can hold (${mega(MOST)} MB)`);
  const stamp = (head.headers.get('etag') ?? head.headers.get('last-modified') ?? '').replace(/[^A-Za-z0-9]+/g, '');
  const name = `${total}-${stamp}.gguf`;
  const kept = await place(name, total);
  return kept ? through(kept, url, total, progress) : straight(url, total, progress);
}

const MOST = 1 << 30;
const mega = (bytes) => Math.ceil(bytes / 1e6);

// The file that keeps the model; null where the browser keeps nothing, or not enough: then it is fetched again next time.
async function place(name, total) {
  try {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle('models', { create: true });
    for await (const other of folder.keys()) {
      // A model that the server no longer has.
      if (other !== name) await folder.removeEntry(other);
    }
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    const file = await folder.getFileHandle(name, { create: true });
    const have = (await file.getFile()).size;
    return quota - usage >= total - have ? file : null;
  } catch {
    return null;
  }
}

async function through(kept, url, total, progress) {
  let have = (await kept.getFile()).size;
  if (have > total) have = 0;
  while (have < total) {
    if (progress(have, total) === false) throw new Error('cancelled');
    const end = Math.min(have + PIECE, total);
    const bytes = await range(url, have, end);
    const writer = await kept.createWritable({ keepExistingData: true });
    await writer.write({ type: 'write', position: have, data: bytes });
    await writer.close();
    have = end;
  }
  progress(total, total);
  return new Uint8Array(await (await kept.getFile()).arrayBuffer());
}

async function straight(url, total, progress) {
  const all = new Uint8Array(total);
  for (let have = 0; have < total; have = Math.min(have + PIECE, total)) {
    if (progress(have, total) === false) throw new Error('cancelled');
    all.set(await range(url, have, Math.min(have + PIECE, total)), have);
  }
  progress(total, total);
  return all;
}

async function range(url, from, end) {
  const answer = await fetch(url, { headers: { range: `bytes=${from}-${end - 1}` } });
  const bytes = new Uint8Array(await answer.arrayBuffer());
  // A server without ranges gives all of it.
  const part = answer.status === 200 ? bytes.subarray(from, end) : bytes;
  if (![200, 206].includes(answer.status) || part.length !== end - from) {
    throw new Error(`the server broke the model off at byte ${from} (answer ${answer.status})`);
  }
  return part;
}
