"use strict";

// Refreshes the tables in place and draws the graph. Without it the page tells the same by itself.
(() => {
    const PERIOD = 2000; // milliseconds

    const drawing = document.getElementById("drawing");
    const stamp = () => document.getElementById("caption").dataset.stamp;
    let graph = null;
    let drawn = "";

    // Whatever differs in a new copy of the page takes its place here, unless somebody is in it.
    function takeOver(copy) {
        for (const old of document.querySelectorAll("[data-live]")) {
            const fresh = copy.getElementById(old.id);
            if (fresh && fresh.outerHTML !== old.outerHTML && !old.contains(document.activeElement)) {
                old.replaceWith(document.adoptNode(fresh));
            }
        }
    }

    async function refresh() {
        if (!document.hidden) {
            try {
                const answer = await fetch(location.href);
                if (answer.ok) {
                    takeOver(new DOMParser().parseFromString(await answer.text(), "text/html"));
                    await draw();
                }
            } catch {
                // The server is being started again; the next look finds it.
            }
        }
        setTimeout(refresh, PERIOD);
    }

    function colour(name) {
        return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    }

    function style() {
        return [
            { selector: "node", style: {
                "width": "data(size)", "height": "data(size)", "label": "data(id)",
                "font-size": 11, "color": colour("--body-fg"), "background-color": colour("--link-fg"),
                "text-valign": "bottom", "text-margin-y": 3, "min-zoomed-font-size": 7,
                "text-outline-width": 2, "text-outline-color": colour("--body-bg"),
            } },
            { selector: "node[!version]", style: {
                "background-opacity": 0, "border-width": 2, "border-color": colour("--body-quiet-color"),
                "color": colour("--body-quiet-color"),
            } },
            { selector: "edge", style: {
                "width": 1.2, "curve-style": "straight", "line-color": colour("--border-color"),
                "target-arrow-shape": "triangle", "target-arrow-color": colour("--border-color"),
                "arrow-scale": 0.8,
            } },
            { selector: "edge[?conflict]", style: {
                "width": 2, "line-style": "dashed", "line-color": colour("--error-fg"),
                "target-arrow-color": colour("--error-fg"),
            } },
        ];
    }

    // Where each node starts: in a spiral, heaviest inside, so that the same graph looks the same.
    function elements(told) {
        const nodes = [...told.nodes].sort((one, other) => other.dependents - one.dependents);
        return [
            ...nodes.map((node, number) => {
                const [turn, far] = [number * 2.4, 40 * Math.sqrt(number)];
                return {
                    data: { ...node, id: node.name, size: 12 + 5 * Math.sqrt(node.dependents) },
                    position: { x: far * Math.cos(turn), y: far * Math.sin(turn) },
                };
            }),
            ...told.edges.map((edge) => ({ data: { ...edge, id: `${edge.source} ${edge.target}` } })),
        ];
    }

    async function draw() {
        if (drawn === stamp() || !stamp()) {
            return;
        }
        const now = stamp();
        const answer = await fetch(drawing.dataset.graph);
        const found = elements(await answer.json());
        drawing.hidden = false;
        document.querySelector(".story-legend").hidden = false;
        if (graph) {
            graph.destroy();
        }
        graph = cytoscape({
            container: drawing,
            elements: found,
            style: style(),
            layout: {
                name: "cose", animate: false, randomize: false, padding: 20, nodeOverlap: 12,
                idealEdgeLength: () => 60, nodeRepulsion: () => 9000, componentSpacing: 50,
            },
            userZoomingEnabled: false,
            boxSelectionEnabled: false,
        });
        graph.on("tap", "node", (event) => {
            location.assign(drawing.dataset.entity.replace("NAME", event.target.id()));
        });
        drawn = now;
        drawing.dataset.drawn = now;
    }

    function recolour() {
        if (graph) {
            graph.style(style());
        }
    }

    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    new ResizeObserver(() => graph && graph.resize().fit(undefined, 20)).observe(drawing);
    draw().finally(() => setTimeout(refresh, PERIOD));
})();
