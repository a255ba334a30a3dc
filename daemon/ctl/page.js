// The timeline's zoom, and the time under the pointer. Without it the page is whole, and does not zoom.
(() => {
  const scroll = document.getElementById("scroll"), lanes = document.getElementById("lanes");
  const span = Number(document.body.dataset.spanNs) / 1e9, root = document.documentElement;
  const label = 240, most = 64;
  let zoom = 1;
  const width = () => lanes.clientWidth - label;
  function zoomTo(value, x) { // what is at x of the window stays there
    const part = (scroll.scrollLeft + x - label) / width();
    zoom = Math.min(most, Math.max(1, value));
    root.style.setProperty("--zoom", zoom);
    scroll.scrollLeft = part * width() - (x - label);
  }
  const bar = document.createElement("p");
  bar.id = "zoom";
  for (const [text, factor] of [["+", 2], ["\u2212", 0.5], ["all", 0]]) {
    const button = document.createElement("button");
    button.textContent = text;
    button.onclick = () => zoomTo(zoom * factor, label + (scroll.clientWidth - label) / 2);
    bar.append(button);
  }
  bar.append("Ctrl and the wheel zoom, too");
  scroll.before(bar);
  scroll.addEventListener("wheel", event => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomTo(zoom * (event.deltaY < 0 ? 1.25 : 0.8), event.clientX - scroll.getBoundingClientRect().left);
  }, { passive: false });
  const hair = document.createElement("div"), at = document.createElement("b");
  hair.id = "hair";
  hair.append(at);
  lanes.append(hair);
  lanes.addEventListener("mousemove", event => {
    const x = event.clientX - lanes.getBoundingClientRect().left;
    const part = (x - label) / width();
    hair.style.display = part >= 0 && part <= 1 ? "block" : "none";
    hair.style.left = x + "px";
    at.textContent = (part * span).toFixed(span < 1 ? 5 : 3) + " s";
    at.style.left = part > 0.9 ? "auto" : "4px";
    at.style.right = part > 0.9 ? "4px" : "auto";
  });
  lanes.addEventListener("mouseleave", () => { hair.style.display = "none"; });
})();
