
// What is wider than its box scrolls inside it; a keyboard reaches only what can be focused.
const reachable = () => {
  for (const box of document.querySelectorAll("pre, figure, .wide")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
addEventListener("load", reachable);
addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true);
