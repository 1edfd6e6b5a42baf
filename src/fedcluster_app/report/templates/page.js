"use strict";
// Sorts tables and hides clusters or sites; the page says the same without it.
(() => {
  const number = (cell) => {
    const told = cell.querySelector("small") ?? cell;
    const value = parseFloat(told.textContent.replace(/[,\s]/g, ""));
    return Number.isNaN(value) ? -Infinity : value;
  };

  const sort = (table, column, head) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const cells = rows.map((row) => row.cells[column]);
    const counts = cells.filter((cell) => number(cell) > -Infinity).length;
    const texts = counts * 2 < rows.length;
    const order = (a, b) => texts
      ? a.cells[column].textContent.localeCompare(b.cells[column].textContent)
      : number(a.cells[column]) - number(b.cells[column]);
    rows.sort((a, b) => (down !== texts ? -1 : 1) * order(a, b));
    table.querySelectorAll("thead th").forEach((th) => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  };

  const sortable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
  };

  const columns = (index, hidden) => {
    document.querySelectorAll("#profiles table").forEach((table) => {
      [...table.rows].forEach((row) => { row.cells[index + 2].hidden = hidden; });
    });
  };

  const hide = (kind, index, hidden) => {
    document.querySelectorAll(`[data-${kind}="${index}"]`).forEach((each) => {
      if (each instanceof SVGElement) each.style.display = hidden ? "none" : "";
      else each.hidden = hidden;
    });
    if (kind === "cluster") columns(index, hidden);
  };

  const heads = { site: "#rounds tr[data-site] > th", cluster: "#profiles thead th:nth-child(n + 3)" };

  const controls = (place) => {
    const kind = place.dataset.hide;
    const names = [...document.querySelectorAll(heads[kind])].map((th) => th.textContent);
    const set = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.textContent = "Show:";
    set.append(legend);
    names.forEach((name, index) => {
      const label = document.createElement("label");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.addEventListener("change", () => hide(kind, index, !box.checked));
      label.append(box, name);
      set.append(label);
    });
    place.append(set);
  };

  const unfold = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded && !folded.open) {
      folded.open = true;
      target.scrollIntoView();
    }
  };

  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll(".controls").forEach(controls);
  addEventListener("hashchange", unfold);
  unfold();
})();
