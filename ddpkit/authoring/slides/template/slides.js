// Begins the show. The theme is that of the system; ?theme=dark and the key T change it.
(() => {
  const root = document.documentElement;
  const asked = new URLSearchParams(location.search).get("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = asked || (dark ? "dark" : "light");
  const turn = () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  };
  Reveal.initialize({
    ...SIZES,
    center: false,
    controls: false,
    hash: true,
    margin: 0,
    plugins: [RevealNotes],
    progress: true,
    slideNumber: "c/t",
    transition: "none",
    keyboard: { 84: turn },
    pdfSeparateFragments: false,
  });
})();
