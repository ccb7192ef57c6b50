// For every word on the page: the ratio of its colour to what is behind it, as WCAG counts it.
() => {
  const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const over = (top, below) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * alpha + below[i] * (1 - alpha));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    const stack = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length && colour[3] !== 0) stack.push(colour);
    }
    return stack.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const measured = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || element.closest("title, style, .skip") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const drawn = element.closest("svg");
    const colour = numbers(drawn ? style.fill : style.color);
    const lanes = drawn ? [...drawn.querySelectorAll(".lane-bg")] : [];
    const backs = [behind(element), ...lanes.map((lane) => numbers(getComputedStyle(lane).fill))];
    const worst = Math.min(...backs.map((back) => ratio(over(colour, back), back)));
    measured.push({ text: text.slice(0, 40), ratio: worst, class: element.getAttribute("class") });
  }
  return measured;
}
