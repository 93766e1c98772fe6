// Draws the thumbnails, and the lines of the chosen head between its words. Words are only ever
// written as text.
(() => {
  const facts = document.body.dataset;
  const words = Number(facts.words), top = Number(facts.top), side = Number(facts.side);
  const names = facts.names.split(" ");
  const bytes = name => Uint8Array.from(
    atob(document.getElementById(name).textContent), letter => letter.charCodeAt(0));
  const thumbnails = bytes("thumbnails"), places = bytes("places"), shares = bytes("shares");
  const wide = words > 256;
  const queries = [...document.getElementById("queries").children];
  const keys = [...document.getElementById("keys").children];
  const buttons = [...document.querySelectorAll("button")];
  const drawn = document.getElementById("drawn"), said = document.getElementById("said");
  const ROW = 20;
  let head = 0, lines = [], held = null;

  buttons.forEach((button, number) => {
    const canvas = button.firstChild;
    canvas.width = canvas.height = side;
    const pen = canvas.getContext("2d"), image = pen.createImageData(side, side);
    for (let cell = 0; cell < side * side; cell++) {
      image.data.set([0, 80, 160, thumbnails[number * side * side + cell]], cell * 4);
    }
    pen.putImageData(image, 0, 0);
    button.addEventListener("click", () => draw(number));
  });

  function strongest(query) {
    const found = [];
    for (let rank = 0; rank < top; rank++) {
      const at = (head * words + query) * top + rank;
      const key = wide ? places[2 * at] + 256 * places[2 * at + 1] : places[at];
      if (shares[at]) found.push({ query, key, share: shares[at] / 255 });
    }
    return found;
  }

  function draw(number) {
    buttons[head].setAttribute("aria-pressed", "false");
    head = number;
    buttons[head].setAttribute("aria-pressed", "true");
    lines = queries.flatMap((_, query) => strongest(query));
    drawn.setAttribute("viewBox", `0 0 100 ${words * ROW}`);
    drawn.setAttribute("preserveAspectRatio", "none");
    drawn.style.height = `${words * ROW}px`;
    drawn.replaceChildren(...lines.map(line => {
      const shape = document.createElementNS(drawn.namespaceURI, "line");
      const ends = { x1: 0, y1: (line.query + 0.5) * ROW, x2: 100, y2: (line.key + 0.5) * ROW };
      for (const [name, value] of Object.entries(ends)) shape.setAttribute(name, value);
      shape.setAttribute("stroke-opacity", line.share.toFixed(3));
      shape.setAttribute("vector-effect", "non-scaling-stroke");
      line.shape = shape;
      return shape;
    }));
    show(held);
  }

  function show(word) {
    const [layer, number] = names[head].split(".");
    let sentence = `Layer ${layer} head ${number}.`;
    for (const item of [...queries, ...keys]) item.classList.remove("on");
    drawn.classList.toggle("one", word !== null);
    for (const line of lines) line.shape.classList.remove("on");
    if (word !== null) {
      const chosen = lines.filter(line => line[word.end] === word.place);
      const other = word.end === "query" ? "key" : "query";
      const items = { query: queries, key: keys };
      items[word.end][word.place].classList.add("on");
      for (const line of chosen) {
        line.shape.classList.add("on");
        items[other][line[other]].classList.add("on");
      }
      const listed = chosen.sort((a, b) => b.share - a.share).slice(0, 12).map(
        line => `${items[other][line[other]].textContent} ${(100 * line.share).toFixed(0)}%`);
      const verb = word.end === "query" ? "attends to" : "is attended to by";
      sentence += ` ${items[word.end][word.place].textContent} ${verb} ${listed.join(", ") || "no word above 0.2%"}`;
    } else {
      sentence += " Point at a word to see its weights, click to hold it.";
    }
    said.textContent = sentence;
  }

  for (const [end, items] of [["query", queries], ["key", keys]]) {
    items.forEach((item, place) => {
      item.addEventListener("mouseenter", () => { if (held === null) show({ end, place }); });
      item.addEventListener("mouseleave", () => { if (held === null) show(null); });
      item.addEventListener("click", () => {
        const again = held !== null && held.end === end && held.place === place;
        held = again ? null : { end, place };
        show(held);
      });
    });
  }
  draw(0);
})();
