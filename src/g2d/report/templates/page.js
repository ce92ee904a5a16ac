"use strict";
// The page's behaviour: figures drawn when they come into view, tables that sort and filter, the browsers of answers and pairs, copying.
// No element is made from text: model texts are already in the page, escaped, and are only moved.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Figures. `ast` has Vega interpret its expressions instead of compiling them, which the page's policy forbids.
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const draw = (figure) => {
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "waiting";
    const options = { ast: true, renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false } };
    vegaEmbed(figure.querySelector(".drawing"), specs[figure.dataset.spec], options).then(
      () => {
        figure.dataset.drawn = "yes";
        figure.querySelector(".vega-embed summary")?.setAttribute("aria-label", "Save this chart");
      },
      (error) => { figure.dataset.drawn = "failed"; console.error(error); },
    );
  };
  const inView = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "400px" });
  all("figure.chart").forEach((figure) => inView.observe(figure));

  // In print every benchmark is shown, each at the axis that was chosen, and only sections that are open.
  let hidden = [];
  addEventListener("beforeprint", () => {
    hidden = all("[data-benchmark][hidden]");
    hidden.forEach((element) => { element.hidden = false; });
    all("figure.chart").filter((figure) => figure.offsetParent).forEach(draw);
  });
  addEventListener("afterprint", () => hidden.forEach((element) => { element.hidden = true; }));

  // Switches: of the elements with data-<key>, those with the chosen value are shown.
  for (const group of all(".switch")) {
    const section = group.closest("section");
    group.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      all("button", group).forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      all(`[data-${group.dataset.key}]`, section).forEach((element) => {
        element.hidden = element.dataset[group.dataset.key] !== button.dataset.value;
      });
    });
  }

  // Tables. Numbers sort by their exact value; missing values stay last.
  const compare = (first, second, numeric) => (numeric ? Number(first) - Number(second) : first.localeCompare(second, "en", { numeric: true }));
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    const headers = all("th", table);
    headers.forEach((header, column) => header.firstElementChild.addEventListener("click", () => {
      const descending = header.getAttribute("aria-sort") === "ascending";
      const numeric = header.classList.contains("number");
      const key = (row) => (numeric ? row.cells[column].dataset.key : row.cells[column].textContent.replace(/^–$/, ""));
      const rows = [...body.rows].sort((a, b) => {
        const [first, second] = [key(a), key(b)];
        if (first === "" || second === "") return (first === "") - (second === "");
        return (descending ? -1 : 1) * compare(first, second, numeric);
      });
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows);
      fold();
    }));
    // A long table shows its first rows, in whatever order, until it is unfolded or filtered.
    const unfold = table.closest(".block").querySelector(".unfold");
    const fold = () => {
      const folded = unfold && unfold.getAttribute("aria-expanded") === "false" && !box.value.trim();
      [...body.rows].forEach((row, i) => row.classList.toggle("beyond", folded && i >= Number(unfold.dataset.first)));
      if (unfold) unfold.hidden = Boolean(box.value.trim());
    };
    const tools = table.closest(".block").querySelector(".table-tools");
    const [box, count] = [tools.querySelector("input"), tools.querySelector("output")];
    const filter = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      fold();
      count.value = words.length ? `${shown} of ${body.rows.length} rows` : `${body.rows.length} rows`;
    };
    box.addEventListener("input", filter);
    unfold?.addEventListener("click", () => {
      const open = unfold.getAttribute("aria-expanded") === "false";
      unfold.setAttribute("aria-expanded", String(open));
      unfold.textContent = open ? "First rows only" : unfold.dataset.all;
      fold();
    });
    filter();
  }

  // A link opens the section of its target.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const folded = target.querySelector(":scope > details.section") || target.closest("details.section");
    if (!folded || folded.open) return;
    folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Pair browser. Every problem is a template; the shown one is a copy, at the K that was last chosen.
  const browser = document.getElementById("pair-browser");
  if (browser) {
    const stage = document.getElementById("pair-stage");
    const [series, problem] = ["pair-series", "pair-problem"].map((id) => document.getElementById(id));
    let templates = [];
    let chosen = 0;
    const steps = () => all(".ks button", stage);
    const showStep = (index) => {
      chosen = Math.max(0, Math.min(index, steps().length - 1));
      steps().forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
      all(".step", stage).forEach((step, i) => { step.hidden = i !== chosen; });
    };
    const showProblem = () => {
      stage.replaceChildren(templates[problem.selectedIndex].content.cloneNode(true));
      showStep(chosen);
    };
    const showSeries = () => {
      templates = all(`#pairs template[data-series="${series.value}"]`);
      problem.replaceChildren(...templates.map((template) => new Option(template.dataset.label)));
      if (templates.length) showProblem();
      else stage.replaceChildren();
    };
    const move = (by) => {
      problem.selectedIndex = (problem.selectedIndex + by + templates.length) % templates.length;
      showProblem();
    };
    stage.addEventListener("click", (event) => {
      const button = event.target.closest(".ks button");
      if (button) showStep(Number(button.dataset.step));
    });
    browser.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.target.tagName === "SELECT") return;
      event.preventDefault();
      showStep(chosen + by);
      if (document.activeElement.closest(".ks")) steps()[chosen].focus();
    });
    series.addEventListener("change", showSeries);
    problem.addEventListener("change", showProblem);
    document.getElementById("pair-previous").addEventListener("click", () => move(-1));
    document.getElementById("pair-next").addEventListener("click", () => move(1));
    showSeries();
  }

  // Answer browser. Every benchmark is a template; what is shown is a copy of a question with the cards of two policies.
  const answers = document.getElementById("answer-browser");
  if (answers) {
    const [series, first, second, verdict, question, stage] = ["series", "first", "second", "verdict", "question", "stage"].map((name) => document.getElementById(`answer-${name}`));
    const cells = all(".cells button", answers);
    let source;
    let questions = [];
    const ofTwo = (list) => [list[first.selectedIndex], list[second.selectedIndex]];
    const verdicts = (question) => ofTwo(question.dataset.verdicts.split(" "));
    const cellOf = (question) => verdicts(question).map((one) => Number(one === "correct")).join("");
    const showQuestion = () => {
      const copy = questions[question.selectedIndex]?.cloneNode(true);
      if (copy) {
        const cards = all(".card", copy);
        copy.querySelector(".cards").replaceChildren(cards[first.selectedIndex], cards[second.selectedIndex].cloneNode(true));
      }
      stage.replaceChildren(...(copy ? [copy] : []));
    };
    const showCell = () => {
      const answered = source.dataset.right.split(" ");
      for (const cell of cells) cell.firstElementChild.textContent = answered.filter((right) => ofTwo(right).join("") === cell.dataset.cell).length;
      const cell = cells.find((button) => button.getAttribute("aria-pressed") === "true").dataset.cell;
      const inCell = all(".question", source.content).filter((entry) => cellOf(entry) === cell);
      const chosen = verdict.value;
      verdict.replaceChildren(new Option("any", ""), ...[...new Set(inCell.flatMap(verdicts))].sort().map((name) => new Option(name.replaceAll("_", " "), name)));
      if ([...verdict.options].some((option) => option.value === chosen)) verdict.value = chosen;
      questions = inCell.filter((entry) => !verdict.value || verdicts(entry).includes(verdict.value));
      question.replaceChildren(...questions.map((entry) => new Option(entry.dataset.label)));
      question.disabled = !questions.length;
      showQuestion();
    };
    const showSeries = () => {
      source = document.querySelector(`#answers template[data-answers="${series.value}"]`);
      const policies = JSON.parse(source.dataset.policies);
      for (const [select, at] of [[first, 0], [second, policies.length - 1]]) {
        select.replaceChildren(...policies.map((name) => new Option(name)));
        select.selectedIndex = at;
      }
      showCell();
    };
    for (const button of cells) {
      button.addEventListener("click", () => {
        cells.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        showCell();
      });
    }
    series.addEventListener("change", showSeries);
    [first, second, verdict].forEach((select) => select.addEventListener("change", showCell));
    question.addEventListener("change", showQuestion);
    showSeries();
  }

  // On a phone the menu starts closed.
  if (innerWidth < 1024) document.querySelector("nav details").open = false;
})();
