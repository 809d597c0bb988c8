// A session's socket that comes back by itself: after a lost connection it asks for the frames after
// the last one it saw, so none is missed and none comes twice.

import { openSocket } from "./http.js";

const RETRY_MS = [200, 500, 1000, 2000, 5000];

export class Live {
  // `hear` takes frames; `lost` is called when frames are gone for good and all must be read anew;
  // `tell` takes "live", "waiting" or "over".
  constructor(sessionId, { hear, lost, tell }) {
    this.sessionId = sessionId;
    this.on = { hear, lost, tell };
    this.seen = null;
    this.tries = 0;
    this.stopped = false;
    this.retry = () => this.connect();
  }

  start() {
    window.addEventListener("online", this.retry);
    document.addEventListener("visibilitychange", this.retry);
    this.connect();
  }

  // A session that was over goes on.
  revive() {
    if (!this.over) return;
    this.over = this.stopped = false;
    this.start();
  }

  stop() {
    this.stopped = true;
    window.removeEventListener("online", this.retry);
    document.removeEventListener("visibilitychange", this.retry);
    clearTimeout(this.timer);
    this.socket?.close();
  }

  connect() {
    if (this.stopped || this.socket) return;
    clearTimeout(this.timer);
    const socket = openSocket(`/sessions/${encodeURIComponent(this.sessionId)}/socket?observe=1`);
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify({ channel: "control", type: "hello", payload: this.hello() }));
    socket.onmessage = (event) => this.take(JSON.parse(event.data));
    socket.onclose = () => this.closed();
  }

  hello() {
    const about = { device_hint: "browser" };
    return this.seen ? { ...about, resume_from_seq: this.seen } : about;
  }

  take(frame) {
    if (frame.type === "welcome") {
      this.tries = 0;
      const first = this.seen === null;
      if (first) this.seen = { ...frame.payload.server_seq };
      this.on.tell("live");
      this.on.hear(frame, { first });
    } else if (frame.type === "closing") {
      this.closing(frame.payload.code);
    } else {
      if (frame.seq !== undefined && this.seen && frame.channel in this.seen) this.seen[frame.channel] = frame.seq;
      this.on.hear(frame, {});
    }
  }

  closing(code) {
    if (code === "resume_failed") {
      this.seen = null;
      this.on.lost();
    } else if (code === "session_ended") {
      this.over = true;
    }
  }

  closed() {
    this.socket = null;
    if (this.stopped) return;
    if (this.over) {
      this.stop();
      this.on.tell("over");
      return;
    }
    this.on.tell("waiting");
    this.timer = setTimeout(this.retry, RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)]);
    this.tries += 1;
  }
}
