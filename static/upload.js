// Files onto the page. The server is told what a browser leaves out of a form: the path of a file in its folder, and
// when it was last changed. What is too much is said before it is sent.

const form = document.querySelector("form.upload");
const said = form?.querySelector("[data-chosen]");
const button = form?.querySelector("button.primary");

const chosen = () => [...form.elements.files.files, ...form.elements.folder.files];

function size(bytes) {
  if (bytes < 1_048_576) return `${Math.ceil(bytes / 1024)} KiB`;
  return `${(bytes / 1_048_576).toFixed(1)} MiB`;
}

function check() {
  const files = chosen();
  const bytes = files.reduce((sum, file) => sum + file.size, 0);
  let wrong = "";
  if (bytes > Number(form.dataset.most)) wrong = ` More than ${form.dataset.said} at once: pack the files, or bring fewer.`;
  else if (files.length > Number(form.dataset.files)) wrong = ` More than ${form.dataset.files} files at once: pack them.`;
  said.textContent = files.length ? `${files.length} file${files.length === 1 ? "" : "s"}, ${size(bytes)}.${wrong}` : "";
  said.classList.toggle("bad", wrong !== "");
  return wrong === "" && files.length > 0;
}

if (form) {
  form.addEventListener("change", check);
  form.addEventListener("submit", (event) => {
    if (!check()) {
      event.preventDefault();
      if (!chosen().length) said.textContent = "Choose files, a folder or an archive.";
      return;
    }
    const about = chosen().map((file) => [file.webkitRelativePath || file.name, file.lastModified]);
    form.elements.about.value = JSON.stringify(about);
    said.textContent = "Uploading. This page goes on by itself when everything is there.";
    button.setAttribute("aria-busy", "true");
  });
}
