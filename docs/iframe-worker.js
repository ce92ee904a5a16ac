// Browsers start no worker from a page that was opened from a folder, so there the search of the site runs in a hidden frame.
// Loaded by mkdocs.yml in place of https://unpkg.com/iframe-worker, which Material's offline plugin would load.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.frame.srcdoc = `<body><script>
      self.postMessage = (data) => parent.postMessage(data, "*");
      self.importScripts = async (...urls) => {
        for (const url of urls) await new Promise((done) => {
          const script = Object.assign(document.createElement("script"), { src: url, onload: done, onerror: done });
          document.body.append(script);
        });
      };
    </script><script src="${new URL(url, location)}"></script>`;
    this.frame.addEventListener("load", () => {
      this.loaded = true;
      this.waiting.forEach((data) => this.postMessage(data));
    });
    addEventListener("message", (event) => {
      if (event.source === this.frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    document.body.append(this.frame);
  }

  postMessage(data) {
    if (this.loaded) this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    else this.waiting.push(data);
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
